"""Generated cron expressions in all time zones, around the days on which their clocks change: next_runs()
against a model that knows Python's zoneinfo. It tries every local time that a fixed expression names, and for one
whose minute or hour begins with * reads the zone's clock at every minute.

    test/tools/property schedules [--seed N] [--cases N]
"""
import argparse
import random
import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo, available_timezones

import psycopg

UTC = timezone.utc
SECOND = timedelta(seconds=1)
LIMITS = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 6)}
# A zone in four is one of these: half an hour, a day that is skipped, Ramadan, the other hemisphere.
ODD_ZONES = ["Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Africa/El_Aaiun", "America/Santiago"]
# Most time is spent where clocks change.
CHANGE_DAYS = 2
RUNS = 40


class Field:
    """A random field: its text and its values."""

    def __init__(self, rng, low, high, any_chance):
        self.is_any = rng.random() < any_chance
        if self.is_any:
            self.text, self.values = "*", set(range(low, high + 1))
            if rng.random() < 0.4:
                step = rng.randint(1, high - low)
                self.text, self.values = f"*/{step}", set(range(low, high + 1, step))
            if rng.random() < 0.1:
                value = rng.randint(low, high)
                self.text, self.values = f"{self.text},{value}", self.values | {value}
            return
        if rng.random() < 0.4:  # each value, and no *
            self.text, self.values = f"{low}-{high}", set(range(low, high + 1))
            return
        parts, self.values = [], set()
        for _ in range(rng.randint(1, 3)):
            first = rng.randint(low, high)
            last = rng.randint(first, high)
            step = rng.randint(1, high - low)
            kind = rng.randrange(3)
            if kind == 0:
                parts.append(str(first))
                self.values.add(first)
            elif kind == 1:
                parts.append(f"{first}-{last}")
                self.values.update(range(first, last + 1))
            else:
                parts.append(f"{first}-{last}/{step}")
                self.values.update(range(first, last + 1, step))
        self.text = ",".join(parts)


class Expression:
    def __init__(self, rng):
        chances = {"minute": 0.25, "hour": 0.3, "day": 0.7, "month": 0.9, "weekday": 0.7}
        self.fields = {name: Field(rng, *LIMITS[name], chance) for name, chance in chances.items()}
        self.seconds = {0}
        self.text = " ".join(field.text for field in self.fields.values())
        if rng.random() < 0.2:
            second = Field(rng, *LIMITS["second"], 0)
            self.seconds = second.values
            self.text = f"{second.text} {self.text}"

    @property
    def names_intervals(self):
        return self.fields["minute"].is_any or self.fields["hour"].is_any

    def has_day(self, day):
        fields = self.fields
        if day.month not in fields["month"].values:
            return False
        in_month = day.day in fields["day"].values
        in_week = day.isoweekday() % 7 in fields["weekday"].values
        if fields["day"].is_any or fields["weekday"].is_any:
            return in_month and in_week
        return in_month or in_week

    def local_times(self, first, last):
        day = first.replace(hour=0, minute=0, second=0)
        while day <= last:
            if self.has_day(day):
                for hour in self.fields["hour"].values:
                    for minute in self.fields["minute"].values:
                        for second in self.seconds:
                            yield day.replace(hour=hour, minute=minute, second=second)
            day += timedelta(days=1)


def shown(instant, zone):
    return instant.astimezone(zone).replace(tzinfo=None)


def instant_of(local, zone):
    """When a clock of the zone shows a local time first; when it is skipped, the end of the gap."""
    before, after = (local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    first = (local - before).replace(tzinfo=UTC)
    if shown(first, zone) == local:
        return first
    early, late = (local - after).replace(tzinfo=UTC), first  # the clock is behind it, ahead of it
    while late - early > SECOND:
        middle = early + (late - early) // (2 * SECOND) * SECOND
        early, late = (early, middle) if shown(middle, zone) > local else (middle, late)
    return late


def changes_of(name, rng):
    """Some instant at which a zone's clocks change, between 1980 and 2037."""
    zone = ZoneInfo(name)
    days = [datetime(1980, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(0, 58 * 365, 7)]
    weeks = [(a, b) for a, b in zip(days, days[1:]) if a.astimezone(zone).utcoffset() != b.astimezone(zone).utcoffset()]
    if not weeks:
        return rng.choice(days)
    early, late = rng.choice(weeks)
    offset = early.astimezone(zone).utcoffset()
    while late - early > SECOND:
        middle = early + (late - early) // (2 * SECOND) * SECOND
        early, late = (early, middle) if middle.astimezone(zone).utcoffset() != offset else (middle, late)
    return late


def watched_runs(expression, zone, after, until):
    """When the clock shows what the expression names. Since 1980 all offsets are whole minutes."""
    minute = after.replace(second=0, microsecond=0)
    while minute <= until:
        local = shown(minute, zone)
        if (local.minute in expression.fields["minute"].values and local.hour in expression.fields["hour"].values
                and expression.has_day(local)):
            yield from (minute + second * SECOND for second in expression.seconds)
        minute += 60 * SECOND


def expected_runs(expression, zone, after, until):
    if expression.names_intervals:
        return sorted(run for run in watched_runs(expression, zone, after, until) if after < run <= until)[:RUNS]
    margin = timedelta(days=2)
    first, last = shown(after, zone) - margin, shown(until, zone) + margin
    runs = {instant_of(local, zone) for local in expression.local_times(first, last)}
    return sorted(run for run in runs if after < run <= until)[:RUNS]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--cases", type=int, default=200)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    rng = random.Random(options.seed)
    with psycopg.connect("", autocommit=True) as connection:
        connection.execute("CREATE EXTENSION stacksaga")
        connection.execute("SET timezone = 'UTC'")
        known = {row[0] for row in connection.execute("SELECT name FROM pg_timezone_names")}
        zones = sorted(known & available_timezones())
        at_changes, checked = {False: 0, True: 0}, 0
        for case in range(options.cases):
            name, expression = rng.choice(zones if case % 4 else ODD_ZONES), Expression(rng)
            zone, change = ZoneInfo(name), changes_of(name, rng)
            after = change - timedelta(seconds=rng.randrange(CHANGE_DAYS * 86400))
            until = after + timedelta(days=2 * CHANGE_DAYS)
            expected = expected_runs(expression, zone, after, until)
            try:
                found = [row[0] for row in connection.execute(
                    "SELECT * FROM stacksaga.next_runs(%s, %s, %s, %s)", (expression.text, name, after, RUNS))]
            except psycopg.Error as error:
                if "No day matches" in (error.diag.message_detail or "") and not expected:
                    continue
                raise
            found = [run for run in found if run <= until]
            checked += len(found)
            at_changes[expression.names_intervals] += sum(abs(run - change) <= timedelta(hours=2) for run in found)
            if found != expected:
                print(f"case {case}: '{expression.text}' in {name} after {after}, clocks change at {change}")
                print(f"  expected {[str(run) for run in expected]}\n  found    {[str(run) for run in found]}")
                return 1
        print(f"{options.cases} expressions, {checked} runs; within two hours of a change of the clocks"
              f" {at_changes[False]} of fixed times and {at_changes[True]} of intervals")
        return 0 if min(at_changes.values()) > options.cases // 10 else 1


if __name__ == "__main__":
    sys.exit(main())
