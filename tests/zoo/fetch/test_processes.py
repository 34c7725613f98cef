"""Processes and threads that fetch the same file, or are killed; the bar that a terminal shows."""

import resource
import signal
import sys
import threading
import time

from file_server import OTHER, SIZE, fetches, nothing_under, send_file, start_process

from keras_vit.zoo.fetch import cache, download


def test_file_size_limit_of_a_process(server):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (SIZE // 2, SIZE // 2))

    _, errors = start_process(server.url, preexec_fn=limit).communicate(timeout=20)
    assert "DownloadError" in errors and "File too large" in errors
    assert nothing_under(server.url)
    assert fetches(server.url)


def test_killed_in_mid_fetch_then_resumed(server):
    server.faults = [send_file(pause=0.02), send_file()]
    process = start_process(server.url)
    while download.size_begun(cache.cached_path(server.url)) <= SIZE // 4:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert nothing_under(server.url)
    assert fetches(server.url)
    assert int(server.ranges()[-1].removeprefix("bytes=").removesuffix("-")) > SIZE // 4


def test_killed_without_a_way_to_tell_the_pieces(server):
    server.faults = [send_file(pause=0.02, sums=(), etag=None), send_file(sums=(), etag=None)]
    process = start_process(server.url)
    while download.size_begun(cache.cached_path(server.url)) <= SIZE // 4:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    process.kill()
    process.wait()
    server.data = OTHER
    assert fetches(server.url, OTHER)
    assert server.ranges() == [None, None]


def test_two_processes_fetch_once(server):
    server.faults = [send_file(pause=0.01)]
    processes = [start_process(server.url) for _ in range(2)]
    outputs = [process.communicate(timeout=30) for process in processes]
    assert [output for output, _ in outputs] == [f"{cache.cached_path(server.url)}\n"] * 2, outputs
    assert len(server.requests) == 1 and fetches(server.url)


def test_eight_threads_fetch_once(server):
    server.faults = [send_file(pause=0.001)]
    found = []
    threads = [threading.Thread(target=lambda: found.append(fetches(server.url))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 8 and len(server.requests) == 1


def test_progress_on_a_terminal(server, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert fetches(server.url)
    assert "file.npz" in capsys.readouterr().err


def test_names_in_the_bar_are_data(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with download.progress_bar("[bold]x[brown]\x1b]0;title\x07.npz") as bar:
        bar(1, 2)
    assert "[bold]x[brown]\\x1b]0;title\\x07.npz" in capsys.readouterr().err
