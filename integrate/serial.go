// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package integrate

func (b *lb) lock() { b.rt.Lock() }

func (b *lb) unlock() { b.rt.Unlock() }
