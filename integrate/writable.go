// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

import (
	"sync"

	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/link"
)

// writable contains the files that noteWritable has logged.
var writable sync.Map

// noteWritable logs, once for each file, that every user of the machine can change it, and with it where
// RPCs go. The file may be empty.
func (c *Config) noteWritable(what, file string) {
	if file == "" || !diagnosis.WorldWritable(file) {
		return
	}
	if _, noted := writable.LoadOrStore(file, true); !noted {
		link.LoggerOr(c.Logger).Warn("xdslb: every user of the machine can change a file that decides where RPCs go",
			"kind", what, "file", file, "remedy", "remove the permission to write from others: chmod o-w")
	}
}
