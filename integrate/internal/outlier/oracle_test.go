// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package outlier

import (
	"math"
	"math/big"

	"github.com/xdslb/xdslb/picker"
)

// oracle is A50 step by step, in rational arithmetic but for the square root.
type oracle struct{ endpoints []*oracleEndpoint }

type oracleEndpoint struct {
	active, inactive struct{ ok, failed int64 } // buckets
	ejected          bool
	timestamp        int64
	multiplier       int64
}

func newOracle(n int) *oracle {
	o := new(oracle)
	for range n {
		o.endpoints = append(o.endpoints, new(oracleEndpoint))
	}
	return o
}

func (o *oracle) calls(i, ok, failed int) {
	o.endpoints[i].active.ok += int64(ok)
	o.endpoints[i].active.failed += int64(failed)
}

func (o *oracle) sweep(cfg *picker.OutlierDetection, now int64, draw func(uint32) uint32) {
	for _, e := range o.endpoints {
		e.inactive, e.active = e.active, struct{ ok, failed int64 }{}
	}
	if r := cfg.SuccessRate; r != nil {
		if with := o.with(r.RequestVolume); len(with) >= int(r.MinimumHosts) {
			mean, stdev := meanAndDeviation(with)
			for _, e := range with {
				if mean-stdev*(float64(r.StdevFactor)/1000)-e.success() > 1e-12 || e.success() == 0 && mean > 0 { // the latter is grpc/proposal#523
					o.eject(e, cfg, r.Enforcement, now, draw)
				}
			}
		}
	}
	if f := cfg.FailurePercentage; f != nil {
		if with := o.with(f.RequestVolume); len(with) >= int(f.MinimumHosts) {
			for _, e := range with {
				percentage := big.NewRat(100*e.inactive.failed, e.inactive.ok+e.inactive.failed)
				if percentage.Cmp(big.NewRat(int64(f.Threshold), 1)) > 0 {
					o.eject(e, cfg, f.Enforcement, now, draw)
				}
			}
		}
	}
	for _, e := range o.endpoints {
		if !e.ejected {
			e.multiplier = max(e.multiplier-1, 0)
			continue
		}
		base, most := int64(cfg.BaseEjectionTime), int64(cfg.MaxEjectionTime)
		if now > e.timestamp+min(base*e.multiplier, max(base, most)) {
			e.ejected = false
		}
	}
}

// with returns the endpoints with the request volume, of which there must be some.
func (o *oracle) with(volume uint32) (out []*oracleEndpoint) {
	for _, e := range o.endpoints {
		if n := e.inactive.ok + e.inactive.failed; n >= max(int64(volume), 1) {
			out = append(out, e)
		}
	}
	return out
}

func (e *oracleEndpoint) success() float64 {
	return float64(e.inactive.ok) / float64(e.inactive.ok+e.inactive.failed)
}

func meanAndDeviation(endpoints []*oracleEndpoint) (mean, stdev float64) {
	n := int64(max(len(endpoints), 1))
	sum, squares := new(big.Rat), new(big.Rat)
	for _, e := range endpoints {
		r := big.NewRat(e.inactive.ok, e.inactive.ok+e.inactive.failed)
		sum.Add(sum, r)
		squares.Add(squares, new(big.Rat).Mul(r, r))
	}
	m := new(big.Rat).Quo(sum, big.NewRat(n, 1))
	v := new(big.Rat).Quo(squares, big.NewRat(n, 1))
	v.Sub(v, new(big.Rat).Mul(m, m))
	mean, _ = m.Float64()
	variance, _ := v.Float64()
	return mean, math.Sqrt(variance)
}

// eject ejects an endpoint that is not, within the share that may be.
func (o *oracle) eject(e *oracleEndpoint, cfg *picker.OutlierDetection, enforcement uint32, now int64, draw func(uint32) uint32) {
	ejected := int64(0)
	for _, x := range o.endpoints {
		if x.ejected {
			ejected++
		}
	}
	share := big.NewRat(100*ejected, int64(len(o.endpoints)))
	if e.ejected || share.Cmp(big.NewRat(int64(cfg.MaxEjectionPercent), 1)) >= 0 || draw(100) >= enforcement {
		return
	}
	e.ejected, e.timestamp = true, now
	e.multiplier++
}
