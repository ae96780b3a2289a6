"""The command line: a door without formulas."""


def main() -> None:
    """Run the command line and leave with its exit code: 0 answered, 2 bad input, 3 infeasible, 4 a fault of ours."""
    import sys

    try:
        from rapid_llm.cli.door import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    raise SystemExit(code)
