"""Processes that share the work on a text."""

import multiprocessing
import os
import signal
import threading


def start_worker() -> None:
    """Ctrl-C is the main process's affair; and when that is killed, nobody else would end its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
