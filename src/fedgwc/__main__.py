"""`python -m fedgwc`, and the command `fedgwc`: what takes long to load is loaded where Ctrl-C is in good hands."""

from fedgwc.runs.interrupt import interruptible


def main() -> None:
    with interruptible():
        from fedgwc.cli.app import main as command

        command()


if __name__ == "__main__":
    main()
