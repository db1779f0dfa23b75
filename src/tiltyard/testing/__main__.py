"""`python -m tiltyard.testing`: run scenarios of the simulation, replay what was found."""

from __future__ import annotations

import argparse
import sys
from itertools import count

from tiltyard.errors import InvalidInput
from tiltyard.testing.simulation.explore import exhaust, explore, replay
from tiltyard.testing.simulation.findings import Finding, again
from tiltyard.testing.simulation.scenarios import SCENARIOS


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tiltyard.testing", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the scenarios")
    run = commands.add_parser("run", help="explore scenarios at random")
    run.add_argument("scenario", nargs="*", help="names; none: all of them")
    run.add_argument("--first", type=int, default=0, help="the first seed")
    run.add_argument("--runs", type=_positive, help="runs of each; none: as long as --seconds")
    run.add_argument("--seconds", type=_time, default=10.0, help="time for each (default %(default)s)")
    every = commands.add_parser("exhaust", help="every schedule with few events")
    every.add_argument("scenario")
    every.add_argument(
        "--events", type=_positive, default=1, help="preemptions and faults (default %(default)s)"
    )
    every.add_argument("--most", type=_positive, help="runs at most")
    once_more = commands.add_parser("replay", help="one run again, with its trace")
    once_more.add_argument("scenario")
    once_more.add_argument("--seed", type=int, default=0)
    once_more.add_argument("--choices", type=_choices, default=(), help="numbers with commas")
    asked = parser.parse_args(arguments)
    if asked.command == "list":
        print("\n".join(SCENARIOS))
        return 0
    names = asked.scenario if asked.command == "run" else [asked.scenario]
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        parser.error(f"no scenario {unknown[0]!r}; there are {', '.join(SCENARIOS)}")
    if asked.command == "replay":
        scenario = SCENARIOS[asked.scenario]()
        try:
            run_again = replay(scenario, asked.seed, asked.choices)
        except InvalidInput as error:
            parser.error(str(error))
        print(Finding(asked.scenario, asked.seed, run_again, again(scenario, asked.seed, run_again.choices)))
        return 1 if run_again.wrong else 0
    found = False
    for name in names or SCENARIOS:
        scenario = SCENARIOS[name]()
        if asked.command == "exhaust":
            report = exhaust(scenario, events=asked.events, most=asked.most)
        else:
            seeds = count(asked.first) if asked.runs is None else range(asked.first, asked.first + asked.runs)
            report = explore(scenario, seeds, seconds=asked.seconds if asked.runs is None else None)
        print(report)
        if report.finding is not None:
            found = True
            print(report.finding)
    return int(found)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, found {text}: nothing would be looked at")
    return number


def _time(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected more than 0 seconds, found {text}")
    return seconds


def _choices(text: str) -> tuple[int, ...]:
    parts = text.split(",") if text else []
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"expected numbers from 0 on with commas between, found {text!r}")
    return tuple(map(int, parts))


if __name__ == "__main__":
    sys.exit(main())
