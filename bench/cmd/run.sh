#!/bin/sh
# Copyright 2026 The xdslb Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs a command of this directory like go run, and shows progress while
# building, which takes minutes with an empty cache:
#
#	run.sh demo [argument ...]
set -eu
name=$1
shift
bin=bench/out/bin
mkdir -p $bin
if [ -t 2 ]; then clear=$(printf '\r\033[K'); else clear=; fi
what="building bench/cmd/$name (the first time this takes minutes)"
if [ -z "$clear" ]; then echo "$what" >&2; fi
begin=$(date +%s)
${GO:-go} build -o $bin/ "./bench/cmd/$name" &
build=$!
trap 'kill $build 2>/dev/null || true; echo "${clear}interrupted while building" >&2; exit 130' INT TERM
while kill -0 $build 2>/dev/null; do
	if [ "$clear" ]; then printf '%s%s %d s' "$clear" "$what" $(($(date +%s) - begin)) >&2; fi
	sleep 0.3
done
printf '%s' "$clear" >&2
wait $build
trap - INT TERM
exec "$bin/$name" "$@"
