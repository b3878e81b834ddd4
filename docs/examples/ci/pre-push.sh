#!/bin/sh
# .git/hooks/pre-push: what breaks its contract is not pushed; git push --no-verify pushes it anyway
exec gemmproof signoff --fail-fast --no-proof
