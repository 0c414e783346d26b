"""Programs that are sent into a clean sandbox as text. They use the standard library only and run on Python >= 3.8."""
