"""``python -m rapid_llm`` is the command ``rapid-llm``."""

from rapid_llm.cli import main

main()
