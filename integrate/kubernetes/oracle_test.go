// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	xdsresource "github.com/xdslb/xdslb/xds/resource"
)

// slowMerge is merge by the text of the rules, one endpoint at a time: the documentation of the
// fields of EndpointSlice, and kube-proxy's use of terminating endpoints. Each line of the
// result is an endpoint.
func slowMerge(svc *corev1.Service, port string, list []*discoveryv1.EndpointSlice, zones nodeZone) []string {
	type occurrence struct{ addr, pod, state, region, zone string }
	var all []occurrence
	for _, slice := range list {
		n := slowPort(svc, port, slice)
		for _, e := range slice.Endpoints {
			if n == 0 || len(e.Addresses) == 0 {
				continue
			}
			ip, err := netip.ParseAddr(e.Addresses[0])
			if err != nil || ip.Zone() != "" || ip.Is4In6() || ip.Is4() != (slice.AddressType == "IPv4") || ip.Is6() != (slice.AddressType == "IPv6") {
				continue
			}
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			serving := e.Conditions.Serving == nil && ready || e.Conditions.Serving != nil && *e.Conditions.Serving
			terminating := e.Conditions.Terminating != nil && *e.Conditions.Terminating
			o := occurrence{addr: netip.AddrPortFrom(ip, uint16(n)).String()}
			switch {
			case !terminating && ready:
				o.state = "HEALTHY"
			case terminating && (ready || serving):
				o.state = "DRAINING"
			default:
				continue
			}
			if e.Zone != nil {
				o.zone = *e.Zone
			}
			if e.NodeName != nil && *e.NodeName != "" {
				region, zone := zones(*e.NodeName)
				o.region = region
				if o.zone == "" {
					o.zone = zone
				}
			}
			o.pod = "address " + o.addr
			if ref := e.TargetRef; ref != nil && ref.UID != "" {
				o.pod = "uid " + string(ref.UID)
			} else if ref != nil && ref.Name != "" {
				o.pod = "name " + ref.Kind + "/" + ref.Namespace + "/" + ref.Name
			}
			all = append(all, o)
		}
	}
	// An occurrence counts unless the same address occurs in a better way.
	better := func(a, b occurrence) bool {
		if a.state != b.state {
			return a.state == "HEALTHY"
		} else if a.pod != b.pod {
			return a.pod < b.pod
		} else if (a.zone == "") != (b.zone == "") {
			return b.zone == ""
		} else if a.zone != b.zone {
			return a.zone < b.zone
		}
		return a.region < b.region
	}
	var used []occurrence
	for _, o := range all {
		if !slices.ContainsFunc(all, func(x occurrence) bool { return x.addr == o.addr && better(x, o) }) && !slices.Contains(used, o) {
			used = append(used, o)
		}
	}
	v6first := len(svc.Spec.IPFamilies) > 0 && svc.Spec.IPFamilies[0] == "IPv6"
	before := func(a, b occurrence) int {
		x, y := netip.MustParseAddrPort(a.addr), netip.MustParseAddrPort(b.addr)
		if x.Addr().Is6() != y.Addr().Is6() {
			if x.Addr().Is6() == v6first {
				return -1
			}
			return 1
		}
		return x.Compare(y)
	}
	anyHealthy := slices.ContainsFunc(used, func(o occurrence) bool { return o.state == "HEALTHY" })
	lines := map[string]bool{}
	for _, o := range used {
		var mine []occurrence
		for _, x := range used {
			if x.pod == o.pod {
				mine = append(mine, x)
			}
		}
		slices.SortFunc(mine, before)
		state, place, addrs := "DRAINING", mine[0], []string{}
		for _, x := range slices.Backward(mine) {
			if x.state == "HEALTHY" || !anyHealthy {
				state = "HEALTHY"
			}
			if x.zone != "" {
				place = x
			}
			addrs = append([]string{x.addr}, addrs...)
		}
		lines[fmt.Sprintf("%s/%s %s %s", place.region, place.zone, state, strings.Join(addrs, " "))] = true
	}
	var out []string
	for line := range lines {
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}

// slowPort returns the number of the port in a slice, or 0.
func slowPort(svc *corev1.Service, port string, slice *discoveryv1.EndpointSlice) int {
	if svc.Spec.Type == "ExternalName" {
		return 0
	}
	for _, p := range svc.Spec.Ports {
		if p.Protocol != "" && p.Protocol != "TCP" || p.Name != port && (fmt.Sprint(p.Port) != port || p.Port == 0) {
			continue
		}
		for _, sp := range slice.Ports {
			name := ""
			if sp.Name != nil {
				name = *sp.Name
			}
			if name != p.Name || sp.Protocol != nil && *sp.Protocol != "" && *sp.Protocol != "TCP" {
				continue
			}
			switch {
			case sp.Port != nil && *sp.Port > 0 && *sp.Port < 65536:
				return int(*sp.Port)
			case sp.Port != nil:
				return 0
			case p.TargetPort.IntVal > 0 && p.TargetPort.IntVal < 65536:
				return int(p.TargetPort.IntVal)
			case p.Port > 0 && p.Port < 65536:
				return int(p.Port)
			}
			return 0
		}
		return 0
	}
	n := 0
	if _, err := fmt.Sscan(port, &n); err == nil && fmt.Sprint(n) == port && n > 0 && n < 65536 &&
		svc.Spec.ClusterIP == "None" && len(svc.Spec.Ports) == 0 && len(slice.Ports) == 0 {
		return n
	}
	return 0
}

// lines is the result of merge in the form of slowMerge.
func lines(list []locality) []string {
	var out []string
	for _, l := range list {
		for _, e := range l.endpoints {
			state := "DRAINING"
			if e.state == healthyState {
				state = "HEALTHY"
			}
			var addrs []string
			for _, a := range e.addrs {
				addrs = append(addrs, a.String())
			}
			out = append(out, fmt.Sprintf("%s/%s %s %s", l.region, l.zone, state, strings.Join(addrs, " ")))
		}
	}
	slices.Sort(out)
	return out
}

// draws makes small random choices from bytes; after the last byte, all are 0.
type draws []byte

func (d *draws) n(n int) int {
	if len(*d) == 0 {
		return 0
	}
	v := int((*d)[0]) % n
	*d = (*d)[1:]
	return v
}

func pick[T any](d *draws, values ...T) T { return values[d.n(len(values))] }

// pickPtr may return nil.
func pickPtr[T any](d *draws, values ...T) *T {
	if i := d.n(len(values) + 1); i > 0 {
		return &values[i-1]
	}
	return nil
}

// world draws a service, its slices and the requested port from few values, so that
// addresses, pods and ports often meet.
func (d *draws) world() (*corev1.Service, string, []*discoveryv1.EndpointSlice) {
	svc := aService("shop", "orders")
	svc.Spec.Type = corev1.ServiceTypeClusterIP
	if d.n(16) == 15 {
		svc.Spec.Type = corev1.ServiceTypeExternalName
	}
	svc.Spec.ClusterIP = pick(d, "10.1.2.3", corev1.ClusterIPNone)
	svc.Spec.IPFamilies = pick(d, nil, []corev1.IPFamily{"IPv4", "IPv6"}, []corev1.IPFamily{"IPv6"})
	for range pick(d, 1, 1, 2, 3, 0) {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{
			Name: pick(d, "grpc", "grpc", "grpc", "grpc", "grpc", "grpc", "", "http"), Port: pick[int32](d, 80, 80, 8080, 0),
			Protocol:   pick(d, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolTCP, "", corev1.ProtocolUDP),
			TargetPort: pick(d, intstr.FromInt32(0), intstr.FromInt32(9000), intstr.FromString("http")),
		})
	}
	var list []*discoveryv1.EndpointSlice
	for i := range 1 + d.n(5) {
		slice := aSlice("shop", "orders", fmt.Sprint("orders-", i), "", 0)
		slice.Ports = nil
		slice.AddressType = pick[discoveryv1.AddressType](d, "IPv4", "IPv4", "IPv4", "IPv6", "IPv6", "FQDN")
		for range pick(d, 1, 1, 1, 2, 0) {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: pickPtr(d, "grpc", "grpc", "grpc", "grpc", "grpc", "", "http"), Port: pickPtr[int32](d, 9000, 9000, 9000, 9000, 9001, 0, 70000), Protocol: pickPtr(d, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP),
			})
		}
		for range 1 + d.n(8) {
			e := discoveryv1.Endpoint{
				Conditions: discoveryv1.EndpointConditions{Ready: pickPtr(d, true, true, false), Serving: pickPtr(d, true, false), Terminating: pickPtr(d, true, false)},
				NodeName:   pickPtr(d, "n1", "n2", "n3", ""), Zone: pickPtr(d, "a", "b", ""),
			}
			switch d.n(4) {
			case 0:
				e.TargetRef = &corev1.ObjectReference{Kind: "Pod", UID: pick[apitypes.UID](d, "u1", "u2", "u3", "u4")}
			case 1:
				e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pick(d, "p1", "p2", "")}
			}
			four := pick(d, "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "bad")
			six := pick(d, "fd00::1", "fd00::2", "fd00::3", "::ffff:10.0.0.1", "fe80::1%eth0")
			if (slice.AddressType == discoveryv1.AddressTypeIPv6) == (d.n(8) > 0) {
				four = six
			}
			e.Addresses = pick(d, []string{four}, []string{four, "10.0.0.9"}, []string{four}, nil)
			slice.Endpoints = append(slice.Endpoints, e)
		}
		list = append(list, slice)
	}
	port := pick(d, "grpc", "80", "8080", "http", "0", "70000")
	if n := len(svc.Spec.Ports); n > 0 && d.n(8) > 0 {
		p := svc.Spec.Ports[d.n(n)]
		port = cmp.Or(pick(d, p.Name, p.Name, ""), fmt.Sprint(p.Port))
	}
	return svc, port, list
}

func testZones(node string) (string, string) {
	switch node {
	case "n1":
		return "r1", "a"
	case "n2":
		return "r1", "c"
	}
	return "", ""
}

// checkMerge compares merge with slowMerge and checks properties of both.
func checkMerge(t *testing.T, random []byte) {
	d := draws(random)
	svc, port, list := d.world()
	result := func(list []*discoveryv1.EndpointSlice) []string {
		p, err := findPort(svc, port)
		if err != nil {
			return nil
		}
		return lines(merge(svc, p, list, testZones))
	}
	got, want := result(list), slowMerge(svc, port, list, testZones)
	if !slices.Equal(got, want) {
		for _, slice := range list {
			text, _ := json.Marshal(slice)
			t.Log(string(text))
		}
		t.Fatalf("port %s of %+v\ngot:\n%s\nwant:\n%s", port, svc.Spec, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// Neither the order of slices nor a copy of one makes a difference, nor the distribution of
	// endpoints over slices.
	var split []*discoveryv1.EndpointSlice
	for _, slice := range slices.Backward(list) {
		for _, e := range slices.Backward(slice.Endpoints) {
			one := *slice
			one.Endpoints = []discoveryv1.Endpoint{e}
			split = append(split, &one, &one)
		}
	}
	if again := result(split); !slices.Equal(got, again) {
		t.Fatalf("after splitting:\n%s\nbefore:\n%s", strings.Join(again, "\n"), strings.Join(got, "\n"))
	}
	seen := map[string]bool{}
	for _, line := range got {
		for _, addr := range strings.Fields(line)[1:] {
			if seen[addr] && strings.Contains(addr, ":") {
				t.Fatalf("address %s occurs twice:\n%s", addr, strings.Join(got, "\n"))
			}
			seen[addr] = true
		}
	}
	checkAccepted(t, svc, port, list)
}

func TestMergeRandom(t *testing.T) {
	random := rand.NewChaCha8([32]byte{42})
	buf := make([]byte, 1000)
	found := 0
	for range 3000 {
		_, _ = random.Read(buf)
		checkMerge(t, buf)
		d := draws(buf)
		if svc, port, list := d.world(); len(slowMerge(svc, port, list, testZones)) > 1 {
			found++
		}
	}
	if found < 300 {
		t.Errorf("only %d of 3000 services had several endpoints", found)
	}
}

func FuzzMerge(f *testing.F) {
	f.Add([]byte("0000100000200000000000000"))
	f.Fuzz(checkMerge)
}

// checkAccepted checks that an XdsClient accepts the resources of a port.
func checkAccepted(t *testing.T, svc *corev1.Service, port string, list []*discoveryv1.EndpointSlice) {
	p, err := findPort(svc, port)
	if err != nil {
		return
	}
	localities := merge(svc, p, list, testZones)
	for _, url := range types {
		typ, _ := xdsresource.TypeOf(url)
		value, err := proto.Marshal(resource(url, "orders.shop:"+port, localities))
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := xdsresource.Decode(typ, value, xdsresource.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := decoded.(*xdsresource.Endpoints); ok && len(localities) > 0 && len(e.Priorities[0].Localities) != len(localities) {
			t.Fatalf("%d localities of %d", len(e.Priorities[0].Localities), len(localities))
		}
	}
}
