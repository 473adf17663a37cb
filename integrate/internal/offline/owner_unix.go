// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package offline

import (
	"os"
	"syscall"
)

// foreign reports whether a file belongs to another user than that of the process.
func foreign(info os.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) != user()
}
