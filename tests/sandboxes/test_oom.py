"""Whose killing it was, as far as one counter for all can tell."""

from forkgym.sandboxes.owner.oom import Kills


def test_a_killing_belongs_to_every_command_it_falls_into_and_to_no_later_one():
    kills = Kills()
    assert not kills.during(1.0, 2.0, 0)
    assert kills.during(3.0, 6.0, 1)  # ends first, and does not take the mark from the next
    assert kills.during(2.5, 7.0, 1)
    assert not kills.during(7.5, 8.0, 1)
    assert kills.during(7.6, 9.0, 2)
    assert kills.seen == 2


def test_a_command_that_ran_longer_than_readings_are_kept_sees_what_is_left_of_them():
    kills = Kills()
    for number in range(1000):
        kills.during(number + 1.0, number + 1.5, 3)
    assert not kills.during(0.5, 2000.0, 3)
    assert kills.during(0.5, 2001.0, 4)
