"""Every QUIC client against every server: cells, their runs, what their packets say, and the site that shows them."""
