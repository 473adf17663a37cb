// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package kit provides helpers shared by the tests of this module: waiting for a condition,
// capturing logs and metrics, and running random histories. Helpers for tests of other modules
// are in package xdstest.
package kit
