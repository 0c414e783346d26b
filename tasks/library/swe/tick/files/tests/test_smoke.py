from datetime import datetime

import pytest

from tick import Cron, CronError, Scheduler


def test_after():
    assert Cron("30 2 * * *").after(datetime(2024, 5, 17, 2, 0)) == datetime(2024, 5, 17, 2, 30)
    assert Cron("30 2 * * *").after(datetime(2024, 5, 17, 2, 30)) == datetime(2024, 5, 18, 2, 30)


def test_refused():
    with pytest.raises(CronError):
        Cron("60 * * * *")


def test_scheduler():
    seen = []
    scheduler = Scheduler()
    scheduler.every("job", "0 * * * *", lambda: seen.append(1), start=datetime(2024, 5, 17, 7, 30))
    scheduler.run_due(datetime(2024, 5, 17, 7, 59))
    assert seen == []
    scheduler.run_due(datetime(2024, 5, 17, 8, 0))
    assert seen == [1]
