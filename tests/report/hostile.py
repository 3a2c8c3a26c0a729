"""What anybody may call a run, which is a folder."""

HOSTILE = '<img src=x onerror=alert(1)>$a_1$'
