from threading import Thread

from forerun.core.locked import locked


def test_the_second_waits_until_the_first_is_done(tmp_path):
    order = []

    def second():
        with locked(tmp_path / "lock"):
            order.append("second")

    thread = Thread(target=second)
    with locked(tmp_path / "lock"):
        thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
