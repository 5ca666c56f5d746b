"""The bentpipe lab: build a satellite path from network namespaces, run real programs over it, report.

Files in the order of a run: `host` (what the machine must allow), `netns` and `process` (the raw
material), `link` (what the scenario is, as the link model explains it), `content` and `origin` (the web
server), `topology` (the path), `system` (what carries the traffic), `measure` (the workloads), `stats`,
`bounds`, `budgets` (what the numbers mean), `report` (what a person reads). `demo` and `bench` are the two
programs made of these.
"""
