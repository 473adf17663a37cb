// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package xdstest

// A port has no effect on other systems: see port_linux.go.
type port struct{}

func (*port) hold(addr string) string { return addr }
