// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package kit is shared by the tests of this module: waiting for a condition, capturing logs, and
// running random histories. It has no compatibility promise. What tests of other modules can use
// is in package xdstest.
package kit
