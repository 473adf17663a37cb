// Copyright 2026 The xdslb Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/xdslb/xdslb/integrate"
	"github.com/xdslb/xdslb/integrate/internal/diagnosis"
	"github.com/xdslb/xdslb/integrate/internal/offline"
	"github.com/xdslb/xdslb/integrate/internal/sanitize"
	"github.com/xdslb/xdslb/integrate/internal/statustext"
	"github.com/xdslb/xdslb/integrate/internal/xdstls"
	"github.com/xdslb/xdslb/integrate/report"
	"github.com/xdslb/xdslb/xds/bootstrap"
	"github.com/xdslb/xdslb/xds/overlay"
)

var checkCommand = command{
	name: "check", args: "[TARGET]", summary: "check the bootstrap, its files and its servers",
	about: "Reads the bootstrap and the overlay like a channel, and all files that the\n" +
		"bootstrap names. It checks that certificates are valid, when they expire, and\n" +
		"that the client certificate was issued by the roots. Then it connects to each xDS\n" +
		"server and opens an ADS stream without requests, in the variant that a client\n" +
		"would use first, and in the other one if the server does not implement it. With a\n" +
		"target, it checks that the control plane sends valid resources for it, and shows\n" +
		"which of them the overlay changes. The section \"compared with grpc-go\" lists what\n" +
		"google.golang.org/grpc/xds would do with the same resources after a roll-back: a\n" +
		"line with \"loss\" means that RPCs would fail. It depends on the variables of gRPC\n" +
		"in the environment. With -f, resources come from a file, and the bootstrap is\n" +
		"optional. The exit code is 1 if there are failures or warnings.",
	example: "xdslb check -b /etc/xds/bootstrap.json -expiry 168h\n" +
		"xdslb check xds:///orders -f orders.json",
	flags: func(e *env, fs *flag.FlagSet) func([]string) (bool, error) {
		var boot bootstrapFlag
		boot.register(fs)
		timeout := fs.Duration("timeout", 5*time.Second, "time to wait for each server")
		expiry := fs.Duration("expiry", 24*time.Hour, "warn about certificates that expire within this time")
		offline := fs.Bool("offline", false, "do not connect to the servers")
		patches := fs.String("overlay", os.Getenv("XDSLB_OVERLAY"), "overlay to check (default $XDSLB_OVERLAY)")
		resources := fs.String("f", "", "`file` with resources, as printed by dump, or - for standard input (default: the control plane)")
		fs.StringVar(&boot.localCluster, "local-cluster", "", "`name` of the program's own cluster, like integrate.Config.LocalCluster")
		return func(args []string) (bool, error) {
			switch {
			case *resources != "" && len(args) != 1:
				return false, want(args, "TARGET")
			case len(args) > 1, len(args) == 1 && *offline && *resources == "":
				return false, want(args)
			}
			c := &checker{e: e, expiry: *expiry}
			patchText := c.overlay(*patches)
			var document []byte
			if *resources == "" || boot.file != "" {
				var cfg *bootstrap.Config
				if cfg, document = c.bootstrap(&boot); cfg != nil {
					c.servers(cfg, boot.delta, *timeout, !*offline && *resources == "")
				}
			}
			if len(args) == 1 && !c.failed() {
				target := fullTarget(args[0])
				if text, sources, err := c.resources(*resources, document, target, &boot, *timeout); err != nil {
					c.add("FAIL", "target "+target, "%v", err)
				} else {
					c.target(target, text, sources, boot.config(document), patchText)
				}
			}
			if e.json {
				return c.wrong(), e.printJSON(c.Findings)
			}
			c.print()
			return c.wrong(), nil
		}
	},
}

// Finding is a result of check.
type Finding struct {
	Section string `json:"section,omitempty"`
	Verdict string `json:"verdict"` // "ok", "info", "loss", "warn" or "FAIL"
	What    string `json:"what"`    // checked item
	Text    string `json:"text"`
}

// print prints the findings as text.
func (c *checker) print() {
	section := ""
	for _, f := range c.Findings {
		if f.Section != section {
			section = f.Section
			fmt.Fprintf(c.e.stdout, "\n%s\n", section)
		}
		statustext.Wrap(c.e.stdout, fmt.Sprintf("%-4s", f.Verdict), sanitize.Text(f.What+": "+f.Text, 2000))
	}
}

// checker collects findings.
type checker struct {
	e        *env
	expiry   time.Duration
	section  string // of the next findings
	Findings []Finding
}

func (c *checker) add(verdict, what, format string, args ...any) {
	c.Findings = append(c.Findings, Finding{c.section, verdict, what, fmt.Sprintf(format, args...)})
}

// wrong reports whether there are failures or warnings.
func (c *checker) wrong() bool {
	return slices.ContainsFunc(c.Findings, func(f Finding) bool { return f.Verdict == "warn" || f.Verdict == "FAIL" })
}

// failed reports whether there are failures.
func (c *checker) failed() bool {
	return slices.ContainsFunc(c.Findings, func(f Finding) bool { return f.Verdict == "FAIL" })
}

// writable warns if every user of the machine can change a file, which may be empty.
func (c *checker) writable(what, file string) {
	if diagnosis.WorldWritable(file) {
		c.add("warn", what, "every user of the machine can change %s: chmod o-w", file)
	}
}

// overlay checks the file of the overlay, if there is one, and returns its text.
func (c *checker) overlay(file string) []byte {
	file = strings.TrimSuffix(file, overlay.Optional)
	if file == "" {
		return nil
	}
	text, err := readFile(file)
	if err != nil {
		c.add("FAIL", "overlay", "%v", err)
		return nil
	}
	o, err := overlay.Parse("file "+file, text)
	if err != nil {
		c.add("FAIL", "overlay", "%v", err)
		return nil
	}
	c.add("ok", "overlay", "%s, patches: %d", file, len(o.Patches()))
	c.writable("overlay", file)
	return text
}

// resources returns the resources of a target with their sources: a file, if it is not empty, or the servers.
func (c *checker) resources(file string, document []byte, target string, boot *bootstrapFlag, timeout time.Duration) (text []byte, sources []string, err error) {
	if file == "" {
		return c.e.fetch(document, target, boot, timeout)
	}
	text, err = readFile(file)
	return text, []string{"file " + file}, err
}

// target checks the resources of a target, and shows the effect of the overlay, whose text is given,
// on them.
func (c *checker) target(target string, resources []byte, sources []string, cfg integrate.Config, text []byte) {
	_ = os.Unsetenv("XDSLB_OVERLAY") // its file may have changed since it was read
	w := integrate.WhatIf{Target: target, Resources: resources, Config: cfg}
	w.Config.Overlay = text
	s, err := integrate.InspectWhatIf(w)
	if err != nil {
		c.add("FAIL", "target "+target, "%v", err)
		return
	}
	c.add("ok", "target "+target, "clusters: %d", len(s.Clusters))
	for _, of := range sources {
		c.add("ok", "resources from", "%s", of)
	}
	for i := range s.Overlay {
		p, verdict := &s.Overlay[i], "ok"
		switch {
		case p.Skipped != nil:
			verdict = "FAIL"
		case p.Changed == nil && p.Unchanged == nil:
			verdict = "info" // overlays may be for several targets
		}
		c.add(verdict, fmt.Sprintf("patches[%d]", i), "%s", p.Effect())
	}
	c.compared(s)
}

// compared shows what google.golang.org/grpc/xds would do with the resources of a target.
func (c *checker) compared(s *report.TargetStatus) {
	c.section = "compared with grpc-go"
	defer func() { c.section = "" }()
	for i := range s.StockDifferences {
		d := &s.StockDifferences[i]
		verdict := "info"
		if d.LosesRPCs {
			verdict = "loss"
		}
		what, remedy, _ := strings.Cut(d.String(), ": "+d.Effect)
		c.add(verdict, what, "%s", d.Effect+remedy)
	}
	for i := range s.ShareShifts {
		c.add("info", "Cluster "+s.ShareShifts[i].Cluster, "%s", s.ShareShifts[i].String())
	}
	if len(s.StockDifferences)+len(s.ShareShifts) == 0 {
		c.add("ok", "resources", "google.golang.org/grpc/xds supports all features in use")
	}
}

// bootstrap checks the bootstrap and the files that it names. It returns nil if it is invalid.
func (c *checker) bootstrap(boot *bootstrapFlag) (cfg *bootstrap.Config, text []byte) {
	text, from, err := boot.read()
	if err != nil {
		c.add("FAIL", "bootstrap", "%v", err)
		return nil, nil
	}
	cfg, err = xdstls.BootstrapParser().Parse(from, text)
	if err != nil {
		c.add("FAIL", "bootstrap", "%v", err)
		return nil, nil
	}
	c.add("ok", "bootstrap", "%s, node %q", from, cfg.Node().GetId())
	c.writable("bootstrap", cmp.Or(boot.file, os.Getenv("GRPC_XDS_BOOTSTRAP")))
	if cfg.Node().GetId() == "" {
		c.add("warn", "node", "no id: control planes cannot distinguish clients")
	}
	for _, path := range cfg.Ignored {
		c.add("warn", "bootstrap", "%s is unknown and ignored", path)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.CertProviders)) {
		c.provider("certificate provider "+name, cfg.CertProviders[name])
	}
	return cfg, text
}

// servers checks the servers of the bootstrap, and connects to them if connect is set.
func (c *checker) servers(cfg *bootstrap.Config, delta bool, timeout time.Duration, connect bool) {
	servers := slices.Clone(cfg.Servers)
	for _, name := range slices.Sorted(maps.Keys(cfg.Authorities)) {
		for _, s := range cfg.Authorities[name].Servers {
			if !slices.Contains(servers, s) {
				servers = append(servers, s)
			}
		}
	}
	for _, s := range servers {
		switch {
		case !s.Local():
			c.credentials(s)
			if connect {
				c.server(s, delta || s.Delta, timeout)
			}
		case connect:
			c.file(s)
		}
	}
}

// file checks the resource file that takes the place of a server.
func (c *checker) file(s *bootstrap.Server) {
	what, name := "xDS server "+s.URI, strings.TrimPrefix(s.URI, "file://")
	text, err := readFile(name)
	if err == nil {
		_, err = offline.Parse(text)
	}
	if err != nil {
		c.add("FAIL", what, "%v", err)
		return
	}
	c.add("ok", what, "a resource file, which is read in this process")
	c.writable(what, name)
}

// credentials checks the files of a server's credentials, which are read only when a channel connects.
func (c *checker) credentials(s *bootstrap.Server) {
	what := "xDS server " + s.URI
	certs, tokens := s.Files()
	if certs != nil {
		c.certificates(what, certs, false)
	}
	for _, file := range tokens {
		if b, err := os.ReadFile(file); err != nil {
			c.add("FAIL", what, "jwt_token_file: %v", err)
		} else {
			c.add("ok", what, "jwt_token_file: %s, %d bytes", file, len(b))
		}
	}
}

// provider checks a certificate provider.
func (c *checker) provider(what string, p bootstrap.CertProvider) {
	switch {
	case p.Unusable != nil:
		c.add("FAIL", what, "plugin %q rejects its configuration: %v", p.Plugin, p.Unusable)
	case p.Files == nil:
		c.add("ok", what, "plugin %q provides the certificates", p.Plugin)
	default:
		if files := p.Files.Files(); files.CACertificateFile == "" && files.SPIFFEBundleMapFile == "" {
			c.add("warn", what, "no roots: clusters cannot use it to verify servers")
		}
		c.certificates(what, p.Files, true)
	}
}

// certificates checks roots and a client certificate, and with issued whether the roots issued it.
func (c *checker) certificates(what string, l *bootstrap.CertLoader, issued bool) {
	files := l.Files()
	roots, err := l.LoadRoots(c.e.ctx)
	switch {
	case err != nil:
		c.add("FAIL", what, "roots: %v", err)
	case roots.TrustDomains != nil:
		c.add("ok", what, "%d trust domains in %s", len(roots.TrustDomains), files.SPIFFEBundleMapFile)
	case roots.Pool != nil:
		c.authorities(what, files.CACertificateFile)
	}
	identity, err := l.LoadIdentity(c.e.ctx)
	switch {
	case err != nil:
		c.add("FAIL", what, "client certificate: %v", err)
	case identity == nil:
		c.add("ok", what, "no client certificate")
	case !issued:
		roots = bootstrap.Roots{} // of the control plane, which may accept clients of other authorities
		fallthrough
	default:
		c.identity(what, files.CertificateFile, identity, roots)
	}
}

// authorities checks the root certificates of a file that the client accepts.
func (c *checker) authorities(what, file string) {
	text, _ := os.ReadFile(file)
	n := 0
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // a byte order mark
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue // clients skip it
		}
		n++
		c.validity(what, fmt.Sprintf("root %q", cert.Subject), cert)
		if !cert.IsCA {
			c.add("warn", what, "root %q is not a certificate authority", cert.Subject)
		}
	}
	c.add("ok", what, "%s in %s", report.Count(n, "root"), file)
}

// identity checks the client certificate, and whether the roots issued it, if there are any.
func (c *checker) identity(what, file string, identity *tls.Certificate, roots bootstrap.Roots) {
	cert := identity.Leaf
	name := fmt.Sprintf("client certificate %q in %s", cert.Subject, file)
	if len(cert.URIs) > 0 {
		name = fmt.Sprintf("client certificate %s in %s", cert.URIs[0], file)
	}
	if !c.validity(what, name, cert) || roots.Pool == nil {
		return
	}
	opts := x509.VerifyOptions{Roots: roots.Pool, Intermediates: x509.NewCertPool(), CurrentTime: c.e.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, der := range identity.Certificate[1:] {
		if between, err := x509.ParseCertificate(der); err == nil {
			opts.Intermediates.AddCert(between)
		}
	}
	if _, err := cert.Verify(opts); err != nil {
		c.add("warn", what, "%s: not issued by the roots for clients: %v", name, err)
	}
}

// validity checks the validity period of a certificate, and reports whether it is valid now.
func (c *checker) validity(what, name string, cert *x509.Certificate) bool {
	now, day := c.e.now(), "2006-01-02 15:04Z"
	switch left := cert.NotAfter.Sub(now); {
	case now.Before(cert.NotBefore):
		c.add("FAIL", what, "%s: not valid before %s", name, cert.NotBefore.UTC().Format(day))
		return false
	case left < 0:
		c.add("FAIL", what, "%s: expired at %s", name, cert.NotAfter.UTC().Format(day))
		return false
	case left < c.expiry:
		c.add("warn", what, "%s: expires in %v, at %s", name, left.Round(time.Minute), cert.NotAfter.UTC().Format(day))
	default:
		c.add("ok", what, "%s: valid until %s", name, cert.NotAfter.UTC().Format(day))
	}
	return true
}

// server connects to an xDS server. With delta, clients use incremental ADS first.
func (c *checker) server(s *bootstrap.Server, delta bool, timeout time.Duration) {
	what := "xDS server " + s.URI
	defer c.e.progress("connecting to %s", s.URI)()
	opts, stop, err := s.DialOptions()
	if err != nil {
		c.add("FAIL", what, "credentials: %v", err)
		return
	}
	defer stop()
	cc, err := grpc.NewClient(s.URI, opts...)
	if err != nil {
		c.add("FAIL", what, "%v", err)
		return
	}
	defer func() { _ = cc.Close() }()
	ctx, cancel := context.WithTimeout(c.e.ctx, timeout)
	defer cancel()
	begin := c.e.now()
	err = openADS(ctx, cc, delta)
	other := false
	if status.Code(err) == codes.Unimplemented {
		other = openADS(ctx, cc, !delta) == nil
	}
	switch code := status.Code(err); {
	case other && delta:
		c.add("warn", what, "connected; only the state-of-the-world variant of ADS is available, which clients select automatically")
	case other:
		c.add("ok", what, "connected; only incremental ADS is available, which clients select automatically, and google.golang.org/grpc/xds lacks")
	case err == nil:
		c.add("ok", what, "connected, ADS is available (%v)", c.e.now().Sub(begin).Round(time.Millisecond))
	case code == codes.Unimplemented:
		c.add("FAIL", what, "connected, but the server does not serve ADS: %v", err)
	case ctx.Err() != nil:
		c.add("FAIL", what, "not connected within %v", timeout)
	case strings.Contains(err.Error(), "server preface"): // gRPC's text: the server does not answer in HTTP/2
		c.add("FAIL", what, "%v; the server does not use HTTP/2 with these credentials (%s): it may require TLS, see channel_creds of the bootstrap", err, s)
	default:
		c.add("FAIL", what, "%v", err)
	}
}

// openADS opens an ADS stream of a variant and ends it without a request.
func openADS(ctx context.Context, cc *grpc.ClientConn, delta bool) error {
	method := "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	if delta {
		method = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
	}
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	// Servers may end such a stream with any status.
	switch err := stream.RecvMsg(new(emptypb.Empty)); status.Code(err) {
	case codes.Unimplemented, codes.Unavailable, codes.Unauthenticated, codes.PermissionDenied, codes.DeadlineExceeded:
		return err
	}
	return nil
}
