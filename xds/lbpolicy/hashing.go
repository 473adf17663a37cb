// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package lbpolicy

import (
	"fmt"
	"math/big"

	maglevv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/maglev/v3"
	ringhashv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/load_balancing_policies/ring_hash/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/xdslb/xdslb/picker"
)

const (
	maxRingSize        = 8 << 20 // entries; T-RING-5
	defaultMinRingSize = 1024    // entries

	maxTableSize     = 5000011 // entries; Envoy's limit
	defaultTableSize = 65537   // entries
)

// ringHash converts A42's policy (A52-RH-1). XX_HASH selects Envoy's placement, bit for bit;
// DEFAULT_HASH leaves the choice to the client (D3).
func ringHash(config []byte, _ Nested) (picker.Policy, error) {
	var m ringhashv3.RingHash
	if err := decode(config, &m); err != nil {
		return picker.Policy{}, err
	}
	xxh64 := false
	switch m.GetHashFunction() {
	case ringhashv3.RingHash_XX_HASH:
		xxh64 = true
	case ringhashv3.RingHash_DEFAULT_HASH:
	default:
		return picker.Policy{}, unsupportedHash(m.GetHashFunction())
	}
	minSize, maxSize, err := ringSizes(&m)
	if err != nil {
		return picker.Policy{}, err
	}
	// The common message has replaced the deprecated field of this one.
	factor := m.GetHashBalanceFactor()
	if common := m.GetConsistentHashingLbConfig(); common != nil {
		factor = common.GetHashBalanceFactor()
	}
	balance, err := balanceFactor(factor)
	if err != nil {
		return picker.Policy{}, err
	}
	return picker.Policy{Ring: &picker.RingPolicy{MinSize: minSize, MaxSize: maxSize, XXH64: xxh64, BalanceFactor: balance}}, nil
}

// maglev converts Envoy's policy, which supports XXH64 only.
func maglev(config []byte, _ Nested) (picker.Policy, error) {
	var m maglevv3.Maglev
	if err := decode(config, &m); err != nil {
		return picker.Policy{}, err
	}
	return maglevTable(m.GetTableSize(), m.GetConsistentHashingLbConfig().GetHashBalanceFactor())
}

func maglevTable(tableSize *wrapperspb.UInt64Value, factor *wrapperspb.UInt32Value) (picker.Policy, error) {
	size := uint64(defaultTableSize)
	if tableSize != nil {
		size = tableSize.GetValue()
	}
	if size > maxTableSize {
		return picker.Policy{}, fmt.Errorf("table_size %d exceeds %d", size, maxTableSize)
	}
	// With no extra rounds the test is exact for all 64-bit numbers.
	if !new(big.Int).SetUint64(size).ProbablyPrime(0) {
		return picker.Policy{}, fmt.Errorf("table_size %d is not prime", size)
	}
	balance, err := balanceFactor(factor)
	if err != nil {
		return picker.Policy{}, err
	}
	return picker.Policy{Ring: &picker.RingPolicy{MinSize: size, XXH64: true, BalanceFactor: balance}}, nil
}

// ringSizer is implemented by both messages that contain ring sizes.
type ringSizer interface {
	GetMinimumRingSize() *wrapperspb.UInt64Value
	GetMaximumRingSize() *wrapperspb.UInt64Value
}

// ringSizes returns the sizes of m in entries, with defaults, such that 1 <= minSize <= maxSize
// <= maxRingSize (T-RING-5).
func ringSizes(m ringSizer) (minSize, maxSize uint64, err error) {
	minSize, maxSize = defaultMinRingSize, maxRingSize
	if v := m.GetMinimumRingSize(); v != nil {
		minSize = v.GetValue()
	}
	if v := m.GetMaximumRingSize(); v != nil {
		maxSize = v.GetValue()
	}
	return minSize, maxSize, checkRingSizes("minimum_ring_size", minSize, "maximum_ring_size", maxSize)
}

// checkRingSizes takes the names of the fields, which differ between xDS and the JSON of gRPC.
func checkRingSizes(minName string, minSize uint64, maxName string, maxSize uint64) error {
	switch {
	case minSize < 1 || minSize > maxRingSize:
		return fmt.Errorf("%s %d is not within 1 to %d", minName, minSize, maxRingSize)
	case maxSize < 1 || maxSize > maxRingSize:
		return fmt.Errorf("%s %d is not within 1 to %d", maxName, maxSize, maxRingSize)
	case minSize > maxSize:
		return fmt.Errorf("%s %d exceeds %s %d", minName, minSize, maxName, maxSize)
	}
	return nil
}

// balanceFactor returns the limit of a host's load as a percentage of the average; 0 means no
// limit.
func balanceFactor(v *wrapperspb.UInt32Value) (uint32, error) {
	if v != nil && v.GetValue() < 100 {
		return 0, fmt.Errorf("hash_balance_factor %d is below 100", v.GetValue())
	}
	return v.GetValue(), nil
}

func unsupportedHash(function fmt.Stringer) error {
	return fmt.Errorf("unsupported ring_hash hash function %v", function)
}
