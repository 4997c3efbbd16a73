"""Italian numbers in words and clock times."""

from phrasebook.italian import preposition

_SMALL = (
    "zero uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici quindici sedici "
    "diciassette diciotto diciannove"
).split()
_TENS = ("", "", "venti", "trenta", "quaranta", "cinquanta", "sessanta", "settanta", "ottanta", "novanta")


def number(value: int) -> str:
    """Return a whole number from 0 to 100 in words: "ventuno", "ventotto", "ventitré".

    Raises:
        ValueError: the number is out of range.
    """
    if not 0 <= value <= 100:
        raise ValueError(f"only numbers from 0 to 100 are known, not {value}")
    if value < len(_SMALL):
        return _SMALL[value]
    if value == 100:
        return "cento"
    tens, unit = divmod(value, 10)
    if unit == 0:
        return _TENS[tens]
    # The last vowel of the ten falls before uno and otto, and a final tre carries an accent.
    stem = _TENS[tens][:-1] if unit in (1, 8) else _TENS[tens]
    return stem + ("tré" if unit == 3 else _SMALL[unit])


def years_of_age(value: int) -> str:
    """Return an age: "un anno", "sette anni"; round tens lose their last vowel, as in "vent'anni"."""
    if value == 1:
        return "un anno"
    if value in range(20, 100, 10):
        return f"{number(value)[:-1]}'anni"
    return f"{number(value)} anni"


def clock(hour: int, minute: int = 0) -> str:
    """Return a time of day with its article: "le tre e mezza", "l'una e un quarto", "mezzogiorno".

    Args:
        hour: 1 to 12, or 0 for midnight; 12 on the hour is noon.
        minute: 0 to 55; after the half hour Italian counts down from the next hour, as English does.
    """
    if minute == 0 and hour in (0, 12):
        return "mezzogiorno" if hour else "mezzanotte"
    if minute > 30:
        return f"{_hour(hour % 12 + 1)} meno {_minutes(60 - minute)}"
    return f"{_hour(hour)} e {_minutes(minute)}" if minute else _hour(hour)


def _hour(hour: int) -> str:
    return "l'una" if hour == 1 else f"le {number(hour)}"


def _minutes(minute: int) -> str:
    return {15: "un quarto", 30: "mezza"}.get(minute) or number(minute)


def it_is(time: str) -> str:
    """Put "it is" before a time: "sono le tre", but "è l'una" and "è mezzogiorno"."""
    return f"{'sono' if time.startswith('le ') else 'è'} {time}"


def at_time(time: str) -> str:
    """Put "at" before a time: "alle tre e mezza", "all'una", "a mezzogiorno"."""
    return preposition("a", time)
