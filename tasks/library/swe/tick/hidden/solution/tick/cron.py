"""Cron expressions."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta

from tick import fields
from tick.fields import CronError, NeverError

_YEARS = 8  # February 29 can be that far away, around 2100


class Cron:
    """``Cron(text)`` raises ``CronError`` for what cannot be read."""

    def __init__(self, text: str) -> None:
        parts = text.split()
        if len(parts) != 5:
            raise CronError(f"expected five fields, not {len(parts)}: {text!r}")
        self.text = text
        kinds = (fields.MINUTE, fields.HOUR, fields.DAY, fields.MONTH, fields.WEEKDAY)
        self._minute, self._hour, self._day, self._month, self._weekday = map(fields.parse, parts, kinds)

    def __repr__(self) -> str:
        return f"Cron({self.text!r})"

    def after(self, moment: datetime) -> datetime:
        """The first matching minute strictly after ``moment``. Raises ``NeverError``."""
        start = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        day, last = start.date(), date(start.year + _YEARS, 12, 31)
        earliest = start.time()
        while day <= last:
            if self._is_day(day) and (found := self._time_from(earliest)) is not None:
                return datetime.combine(day, found)
            day += timedelta(days=1)
            earliest = time.min
        raise NeverError(f"{self.text!r} never comes true")

    def _is_day(self, day: date) -> bool:
        if day.month not in self._month.values:
            return False
        in_month = day.day in self._day.values
        in_week = day.isoweekday() % 7 in self._weekday.values
        if self._day.restricted and self._weekday.restricted:
            return in_month or in_week
        return in_month and in_week

    def _time_from(self, earliest: time) -> time | None:
        for hour in sorted(self._hour.values):
            if hour < earliest.hour:
                continue
            for minute in sorted(self._minute.values):
                if hour > earliest.hour or minute >= earliest.minute:
                    return time(hour, minute)
        return None
