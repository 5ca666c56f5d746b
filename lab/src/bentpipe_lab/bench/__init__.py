"""Speed, memory and punctuality of tunnel, emulator and simulator."""
