// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

// Package house has tests of the repository as a whole: that what its texts
// refer to is there (ids, files, Go names, tests), and that the code in them
// compiles.
package house
