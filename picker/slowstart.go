// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package picker

import (
	"fmt"
	"math"
	"time"
)

// check reports whether the parameters can be used. They are written such that NaN
// cannot.
func (s *SlowStart) check() error {
	switch {
	case s.Window <= 0:
		return fmt.Errorf("slow start: window %v is not positive", s.Window)
	case !(s.Aggression > 0):
		return fmt.Errorf("slow start: aggression %v is not positive", s.Aggression)
	case !(s.MinWeightPercent >= 0 && s.MinWeightPercent <= 100):
		return fmt.Errorf("slow start: minimum weight %v %% is not within 0 to 100 %%", s.MinWeightPercent)
	}
	return nil
}

// factor returns by how much the weight of an endpoint counts that has been READY
// for so long: Envoy's curve.
func (s *SlowStart) factor(age time.Duration) float64 {
	if age >= s.Window {
		return 1
	}
	t := float64(max(age, time.Millisecond)) / float64(s.Window)
	return min(max(math.Pow(t, 1/s.Aggression), s.MinWeightPercent/100), 1)
}

// warm reduces the weights of p's endpoints that are within the window, and reports
// whether there are any. So that there is room below a weight of 1, all weights may
// be multiplied first, which changes nothing about their ratios: the lightest one
// gets to 256 or so, and a tenth of that is off by 2 % at most. O(endpoints).
func (s *SlowStart) warm(weights []uint32, p *pool, now int64) bool {
	warming, lightest, sum := false, uint64(math.MaxUint32), uint64(0)
	for i, w := range weights {
		if w > 0 {
			warming = warming || age(p.endpoints[i], now) < s.Window
			lightest, sum = min(lightest, uint64(w)), sum+uint64(w)
		}
	}
	if !warming {
		return false
	}
	scale := max(min((255+lightest)/lightest, math.MaxUint32/sum), 1)
	for i, w := range weights {
		if w > 0 {
			whole := uint64(w) * scale
			if since := age(p.endpoints[i], now); since < s.Window {
				whole = max(uint64(math.Round(float64(whole)*s.factor(since))), 1)
			}
			weights[i] = uint32(whole)
		}
	}
	return true
}

// age returns for how long e has been READY.
func age(e *EndpointState, now int64) time.Duration {
	return time.Duration(now - e.ReadySince)
}
