"""A03: carriage returns survive capture, JSON and a clean checkout."""


def test_crlf_is_kept(desk):
    task = desk.task(files={"f.txt": b"a\r\nb\r\nc\r\n"})
    submission = desk.work(task, "sed -i 's/b/B/' f.txt")
    assert desk.applied(task, submission, "f.txt").hex() == "610d0a420d0a630d0a"
