// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package compare

// Features returns the features of all rows, and whether stock loses RPCs.
func Features() map[string]bool {
	all := map[string]bool{}
	for i := range rows {
		all[rows[i].feature] = rows[i].loses
	}
	return all
}
