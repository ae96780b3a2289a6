"""The command line: a door without formulas."""


def main() -> None:
    """Run the command line and leave with its exit code: 0 answered, 2 bad input, 3 infeasible, 4 a fault of ours."""
    import signal
    import sys

    interrupted = []

    def interrupt(*_: object) -> None:
        interrupted.append(True)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        from rapid_llm.cli.door import run

        code = run(sys.argv[1:], lambda: bool(interrupted))
    except KeyboardInterrupt:
        code = 130
    raise SystemExit(code)
