#!/bin/bash -eu
# Copyright 2026 The xdslb Authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds each fuzz target for OSS-Fuzz, which sets SRC, OUT and the compilers.
# The Dockerfile copies only this script; the targets are those of the checkout.
targets() { # of packages in the module of the working directory
	go get github.com/AdamKorcz/go-118-fuzz-build/testing
	for pkg; do
		path=$(go list "$pkg")
		for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz'); do
			compile_native_go_fuzzer_v2 "$path" "$target" "$target"
		done
	done
}
cd "$SRC/xdslb"
targets ./fuzz ./xds/bootstrap ./xds/resource ./integrate/internal/balancer ./integrate/internal/offline ./integrate/internal/rpc
cd integrate/kubernetes
targets .
