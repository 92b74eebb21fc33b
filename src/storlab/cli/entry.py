"""Where the program starts: nothing is loaded yet, so that Ctrl-C in its first tenth of a second is no traceback."""

import os
import resource
import sys
import warnings

from storlab.cli.output import open_streams

_COMPLETING = "_STORLAB_COMPLETE"
"""Set by a shell that asks Typer how a command goes on."""
_LEAST = 512 << 20
"""Bytes of address space. With less than 300 MiB Polars can't start its threads, and ends the process by a signal."""
_OTHERS = 0o022
"""What nobody else may write, whatever the umask: root refuses to follow records that others could have changed."""
_NO_MEMORY = b"storlab: not enough memory: nothing more could be done\n"


def main() -> None:
    """Run a command; see ``storlab.cli.main``."""
    try:
        open_streams()
        os.umask(os.umask(0o077) | _OTHERS)
        warnings.filterwarnings("ignore", "Polars binary is missing")  # for lack of memory, which is then reported
        if not _import_plainly():
            _refuse_too_little_memory()
            from storlab.cli.main import main as run

            run()
    except SystemExit:
        raise
    except KeyboardInterrupt:
        sys.exit(130)  # failure.INTERRUPTED, which is not loaded
    except BaseException as error:  # of loading the program itself, or of telling what went wrong
        try:
            os.write(2, _told(error))
        except BaseException:  # there is no memory even for that
            os.write(2, _NO_MEMORY)
        finally:
            os._exit(1)  # an orderly end may want memory as well


def _told(error: BaseException) -> bytes:
    return f"storlab: cannot be loaded, perhaps for lack of memory: {type(error).__name__}: {error}\n".encode()


def _import_plainly() -> bool:
    """Whether it was a call that needs no Typer, which is done then."""
    if sys.argv[1:2] != ["import"] or _COMPLETING in os.environ:
        return False
    from storlab.cli.import_.options import plain_options

    options = plain_options(sys.argv[2:])
    if options is None:
        return False
    from storlab.cli.import_.files import import_files
    from storlab.cli.output import one_thread_for_algebra
    from storlab.cli.status import explaining

    one_thread_for_algebra()
    explaining(lambda: import_files(options))
    return True


def _refuse_too_little_memory() -> None:
    """Exit with status 1 where a limit of this process leaves no room for the libraries: they would crash or hang."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit < _LEAST:
        sys.exit(
            f"storlab: not enough memory: this process may use {limit >> 20} MiB of addresses (ulimit -v), "
            f"and the program needs {_LEAST >> 20} MiB at least"
        )
