"""User kernels run in worker processes, where they can crash or hang without losing results.

Every end that a worker can have, and its verdict; exit codes in parentheses:

| the worker                                                        | end    | verdict        |
|-------------------------------------------------------------------|--------|----------------|
| answers                                                           | done   | its own        |
| dies of SIGSEGV, SIGABRT or another fault, or of os._exit         | crash  | a finding (1)  |
| calls sys.exit                                                    | left   | a finding (1)  |
| spends a case's seconds in the target's Python, with no launch    | hang   | a finding (1)  |
| spends them in gemmproof's own code                               | slow   | incomplete (3) |
| spends more than all cases may take                               | time   | incomplete (3) |
| exceeds --memory-limit, most of it allocated by the target's code | memory | a finding (1)  |
| exceeds it otherwise, or the machine's free memory; is refused it | full   | incomplete (3) |
| dies of SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT or SIGXCPU      | killed | runs again; if |
|                                                                   |        | it dies again, |
|                                                                   |        | incomplete (3) |
| still runs when the command is interrupted                        | halted | incomplete (3) |
| dies, or breaks a limit, in a proof                               | as is  | runs again     |
|                                                                   |        | without it     |
| has an end that would be a finding while loading the target       | as is  | an error (2)   |
| holds more than the limit before it loads the target              | full   | an error (2)   |

Within a worker that lives, the engine classifies each call likewise: a kernel that repeats itself
without end is a finding; one that otherwise runs out of CPU time or memory leaves its case
unjudged, and the check incomplete (reference/simulator/session.py); an unknown host call or launch
option is an error (2).
"""
