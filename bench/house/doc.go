// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package house has tests of the repository as a whole: that what its texts
// refer to is there (ids, files, headings, Go names, tests, metrics, environment
// variables), that the code in them compiles, that commands can be typed, and that
// JSON is accepted.
package house
