"""`python -m bentpipe_lab`: the lab's programs."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from bentpipe_lab.bench import tunnel as bench
from bentpipe_lab.errors import LabError
from bentpipe_lab.net import host
from bentpipe_lab.studies import controllers, demo
from bentpipe_lab.studies import run as studies


def main() -> int:
    """Parse the command line and run what it names."""
    parser = argparse.ArgumentParser(prog="bentpipe_lab", description="The bentpipe lab.")
    commands = parser.add_subparsers(dest="command", required=True)
    showing = commands.add_parser("demo", help="direct TCP against bentpipe on GEO and LEO, with a report")
    showing.add_argument("--out", type=Path, default=Path("out/demo"))
    showing.add_argument("--quick", action="store_true", help="one run of each workload: to try it, not to believe it")
    measuring = commands.add_parser("bench", help="speed and memory of tunnel and emulator")
    measuring.add_argument("--out", type=Path, default=Path("out/bench"))
    comparing = commands.add_parser("controllers", help="the tunnel's congestion controllers beside each other")
    comparing.add_argument("--out", type=Path, default=Path("out/controllers"))
    comparing.add_argument("--of", nargs="+", default=controllers.CONTROLLERS, metavar="CONTROLLER", help="which")
    studying = commands.add_parser("studies", help="published studies in virtual time, with a report")
    studying.add_argument("--out", type=Path, default=Path("out/studies"))
    studying.add_argument("--only", nargs="+", default=[], metavar="STUDY", help="some of them, like bujari")
    commands.add_parser("clean", help="remove what runs that died left behind")
    arguments = parser.parse_args()
    console = Console()
    try:
        match arguments.command:
            case "demo":
                return demo.demo(arguments.out, demo.counts_of_runs(quick=arguments.quick), console)
            case "bench":
                return bench.bench(arguments.out, console)
            case "controllers":
                return controllers.compare(arguments.out, arguments.of, console)
            case "studies":
                return studies.studies(arguments.out, arguments.only, console)
            case _:
                console.print(*(host.clean_leftovers() or ["nothing was left behind"]))
                return 0
    except LabError as error:
        console.print(f"[bold red]cannot go on:[/] {error}", highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("interrupted; cleaned up")
        return 130


if __name__ == "__main__":
    sys.exit(main())
