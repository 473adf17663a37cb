// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package cputime reads the processor time that this process has used, user and
// system time together, as the operating system accounts for it. Time for which
// another process has the processor is not in it.
package cputime
