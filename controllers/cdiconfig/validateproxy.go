package cdiconfig

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/slipway-vm/slipway/internal/proxy"
)

// hidden stands where a proxy's address has a user and a password.
const hidden = "xxxxx"

// validateProxy returns what is wrong with the proxy of imports. An address is never repeated: what is wrong with it
// may be that its password cannot be told from the rest.
func validateProxy(set *cdiv1.ImportProxy, at *field.Path) field.ErrorList {
	if set == nil {
		return nil
	}
	errs := append(proxyAddress(ptr.Deref(set.HTTPProxy, ""), at.Child("HTTPProxy")), proxyAddress(ptr.Deref(set.HTTPSProxy, ""), at.Child("HTTPSProxy"))...)
	for entry := range strings.SplitSeq(ptr.Deref(set.NoProxy, ""), ",") {
		if entry = strings.TrimSpace(entry); entry != "" && !isNear(entry) {
			errs = append(errs, field.Invalid(at.Child("noProxy"), field.OmitValueType{}, "write names of hosts, domains such as .example.com, addresses, and ranges of them such as 10.0.0.0/8, separated by commas; of what is none of these no host would be one"))
			break
		}
	}
	if name := ptr.Deref(set.TrustedCAProxy, ""); name != "" {
		if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
			errs = append(errs, field.Invalid(at.Child("trustedCAProxy"), name, "it is no name of a ConfigMap: "+strings.Join(wrong, "; ")))
		}
	}
	return errs
}

// proxyAddress checks the address of a proxy; empty is none.
func proxyAddress(text string, at *field.Path) field.ErrorList {
	text = strings.TrimSpace(text)
	if text == "" {
		return nil
	}
	const form = "write http://host:port or http://user:password@host:port, or https instead where the proxy has TLS; special characters of user and password as %XX"
	u, err := proxy.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || !isPort(u.Port()):
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "it cannot be read as the address of a proxy; "+form)}
	case u.Scheme != "http" && u.Scheme != "https":
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, "proxies are spoken to by http or https; "+form)}
	}
	return nil
}

// isNear says whether an entry of noProxy can be of any host: others would do nothing.
func isNear(entry string) bool {
	if entry == "*" || isRange(entry) {
		return true
	}
	host, port, err := net.SplitHostPort(entry)
	switch {
	case err != nil:
		host = entry
	case port == "" || !isPort(port):
		return false
	}
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Zone() == ""
	}
	if below, any := strings.CutPrefix(host, "*."); any {
		host = below
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "."), ".")
	if ascii, err := idna.Lookup.ToASCII(host); err == nil {
		host = ascii
	}
	last := host[strings.LastIndex(host, ".")+1:]
	return domain.MatchString(host) && strings.Trim(last, "0123456789") != "" // else it is a part of an address
}

// domain is a name of a host or of all below it.
var domain = regexp.MustCompile(`^[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*$`)

// isPort says whether text is a port, or empty.
func isPort(text string) bool {
	port, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && port > 0
}

// shown is the proxy of imports as everyone may read it: without users and passwords.
func shown(set *cdiv1.ImportProxy) *cdiv1.ImportProxy {
	if set == nil {
		return nil
	}
	public := set.DeepCopy()
	for _, address := range []**string{&public.HTTPProxy, &public.HTTPSProxy} {
		if *address != nil && Secret(**address) {
			*address = new(withoutUser(**address))
		}
	}
	return public
}

// withoutUser hides user and password of a proxy's address.
func withoutUser(address string) string {
	u, err := proxy.Parse(strings.TrimSpace(address))
	if err != nil {
		return hidden // it came by admission before that knew better
	}
	return u.Scheme + "://" + hidden + "@" + u.Host
}
