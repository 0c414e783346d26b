from datetime import datetime, timedelta

import pytest

from tick import CronError, Scheduler

START = datetime(2024, 5, 17, 7, 30)


@pytest.fixture
def seen():
    return []


@pytest.fixture
def scheduler():
    return Scheduler()


def test_in_the_order_of_being_due(scheduler, seen):
    for name, cron in [("c", "50 7 * * *"), ("a", "40 7 * * *"), ("b", "45 7 * * *")]:
        scheduler.every(name, cron, lambda name=name: seen.append(name), start=START)
    assert scheduler.next_due() == datetime(2024, 5, 17, 7, 40)
    assert scheduler.run_due(datetime(2024, 5, 17, 7, 47)) == 2
    assert seen == ["a", "b"]
    assert [job.name for job in scheduler.jobs()] == ["c", "a", "b"]


def test_missed_times_run_once(scheduler, seen):
    job = scheduler.every("a", "*/5 * * * *", lambda: seen.append(1), start=START)
    assert scheduler.run_due(START + timedelta(hours=3, minutes=2)) == 1
    assert job.due == datetime(2024, 5, 17, 10, 35)
    assert scheduler.run_due(START + timedelta(hours=3, minutes=4)) == 0
    assert seen == [1]


def test_each_time_once(scheduler, seen):
    scheduler.every("a", "0 * * * *", lambda: seen.append(1), start=START)
    for minute in range(0, 150, 10):
        scheduler.run_due(START + timedelta(minutes=minute))
    assert len(seen) == 2


def failing():
    raise OSError("disk full")


def test_a_failing_job_stops_nobody(scheduler, seen, caplog):
    bad = scheduler.every("bad", "0 8 * * *", failing, start=START)
    good = scheduler.every("good", "1 8 * * *", lambda: seen.append(1), start=START)
    assert scheduler.run_due(datetime(2024, 5, 17, 8, 5)) == 2
    assert seen == [1]
    assert (bad.runs, bad.failures, good.runs, good.failures) == (1, 1, 1, 0)
    assert "bad" in caplog.text
    assert "disk full" in caplog.text


def test_a_failing_job_goes_on(scheduler):
    bad = scheduler.every("bad", "0 * * * *", failing, start=START)
    for hour in (8, 9, 10):
        assert scheduler.run_due(datetime(2024, 5, 17, hour)) == 1
    assert bad.failures == 3
    assert bad.due == datetime(2024, 5, 17, 11)


def test_a_failing_job_is_not_tried_again_at_once(scheduler):
    bad = scheduler.every("bad", "0 8 * * *", failing, start=START)
    scheduler.run_due(datetime(2024, 5, 17, 8))
    assert scheduler.run_due(datetime(2024, 5, 17, 8, 1)) == 0
    assert bad.due == datetime(2024, 5, 18, 8)


def test_the_interrupt_key_still_works(scheduler):
    def interrupt():
        raise KeyboardInterrupt

    scheduler.every("a", "0 8 * * *", interrupt, start=START)
    with pytest.raises(KeyboardInterrupt):
        scheduler.run_due(datetime(2024, 5, 17, 8))


def test_a_job_may_remove_itself(scheduler, seen):
    def once():
        seen.append("once")
        scheduler.remove("once")

    scheduler.every("once", "0 8 * * *", once, start=START)
    scheduler.every("other", "0 8 * * *", lambda: seen.append("other"), start=START)
    assert scheduler.run_due(datetime(2024, 5, 17, 8)) == 2
    assert scheduler.run_due(datetime(2024, 5, 18, 8)) == 1
    assert seen == ["once", "other", "other"]


def test_a_removed_job_does_not_run_in_this_round(scheduler, seen):
    scheduler.every("first", "0 8 * * *", lambda: scheduler.remove("second"), start=START)
    scheduler.every("second", "1 8 * * *", lambda: seen.append("second"), start=START)
    assert scheduler.run_due(datetime(2024, 5, 17, 9)) == 1
    assert seen == []


def test_a_job_may_add_another(scheduler, seen):
    def first():
        if not seen:
            scheduler.every("second", "0 9 * * *", lambda: seen.append("second"), start=START)
        seen.append("first")

    scheduler.every("first", "0 8 * * *", first, start=START)
    assert scheduler.run_due(datetime(2024, 5, 17, 8)) == 1
    assert scheduler.run_due(datetime(2024, 5, 17, 9)) == 1
    assert seen == ["first", "second"]


def test_a_name_is_used_once(scheduler):
    scheduler.every("a", "0 8 * * *", failing, start=START)
    with pytest.raises(ValueError, match="'a'"):
        scheduler.every("a", "0 9 * * *", failing, start=START)


def test_a_bad_expression_adds_nothing(scheduler):
    with pytest.raises(CronError):
        scheduler.every("a", "0 25 * * *", failing, start=START)
    assert scheduler.jobs() == []
    assert scheduler.next_due() is None
