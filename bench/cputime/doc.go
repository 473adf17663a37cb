// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package cputime provides the processor time that this process has used, user and system time
// together, as accounted by the operating system. It does not include time of other processes.
package cputime
