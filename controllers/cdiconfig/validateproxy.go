package cdiconfig

import (
	"strconv"
	"strings"

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
		if entry = strings.TrimSpace(entry); strings.ContainsAny(entry, " \t\r\n/@") && !isRange(entry) {
			errs = append(errs, field.Invalid(at.Child("noProxy"), field.OmitValueType{}, "write names of hosts, domains such as .example.com, addresses, and ranges of them such as 10.0.0.0/8, separated by commas"))
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
