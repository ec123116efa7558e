"""threads.py LIBRARY: threads, JSON, compressed archives, subprocesses and forks, all checked."""

import io
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import zipfile
import zlib


def has_library(process, library):
    with open(f"/proc/{process}/maps") as maps:
        return not library or any(line.rstrip().endswith(library) for line in maps)


def work(seed):
    """Returns a checksum that depends on every object made on the way."""
    value = {"seed": seed, "list": [[seed * index % 97] * (index % 50) for index in range(400)]}
    value["texts"] = {str(index): "x" * (index * 7 % 3000) for index in range(200)}
    again = json.loads(json.dumps(value))
    assert again == value, "JSON changed the value"
    data = json.dumps(value, sort_keys=True).encode()
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for index in range(20):
            archive.writestr(f"{index}.json", data[index:])
    with zipfile.ZipFile(memory) as archive:
        assert archive.testzip() is None, "an archived file is damaged"
        assert archive.read("7.json") == data[7:], "an archived file has changed"
    return zlib.crc32(data)


def main():
    library = sys.argv[1]
    assert has_library("self", library), f"{library} is not loaded"
    expected = [work(seed) for seed in range(6)]
    results = [None] * 6

    def one(index):
        results[index] = work(index)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    # Forks while threads allocate.
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.map(work, range(6)) == expected, "a forked process computed something else"
    for thread in threads:
        thread.join()
    assert results == expected, "a thread computed something else"
    for _ in range(5):
        child = subprocess.run([sys.executable, "-c", "print(sum(map(len, [str(i) for i in range(10000)])))"],
                               stdout=subprocess.PIPE, check=True)
        assert child.stdout == b"38890\n", "a subprocess computed something else"
    print("all checked")


if __name__ == "__main__":
    main()
