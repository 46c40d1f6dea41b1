package expose

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
)

// Names of the flags.
const (
	flagName       = "name"
	flagPort       = "port"
	flagProtocol   = "protocol"
	flagTargetPort = "target-port"
	flagPortName   = "port-name"
	flagType       = "type"
	flagFamily     = "ip-family"
	flagPolicy     = "ip-family-policy"

	lastPort = 65535
)

// options are the flags, first as the user wrote them and then as parse reads them.
type options struct {
	name, clusterIP, externalIP string
	port                        int32
	targetPort, portName        string
	protocolText, typeText      string
	familyText, policyText      string
	protocol                    corev1.Protocol
	serviceType                 corev1.ServiceType
	families                    []corev1.IPFamily
	policy                      *corev1.IPFamilyPolicy
	warnings                    []string // of what has no effect
}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&o.name, flagName, "", "Name of the Service. Required.")
	flags.Int32Var(&o.port, flagPort, 0, "Port of the Service.")
	flags.StringVar(&o.targetPort, flagTargetPort, "", "Port of the guest, by number or name; by default the same as --port.")
	flags.StringVar(&o.protocolText, flagProtocol, string(corev1.ProtocolTCP), "TCP or UDP.")
	flags.StringVar(&o.portName, flagPortName, "", "Name of the port.")
	flags.StringVar(&o.typeText, flagType, string(corev1.ServiceTypeClusterIP), "Type of the Service: ClusterIP, NodePort or LoadBalancer.")
	flags.StringVar(&o.clusterIP, "cluster-ip", "", "Address of the Service in the cluster; None for one without. By default the cluster chooses.")
	flags.StringVar(&o.externalIP, "external-ip", "", "One more address at which nodes accept traffic for the Service; something else must route it to them.")
	flags.StringVar(&o.familyText, flagFamily, "", "IP families of the Service, the first one first: IPv4, IPv6, or both with a comma between them.")
	flags.StringVar(&o.policyText, flagPolicy, "", "SingleStack, PreferDualStack or RequireDualStack; PreferDualStack where --ip-family names both.")
}

// parse reads the flags; changed says which the user gave.
func (o *options) parse(changed func(flag string) bool) error {
	if changed(flagPort) && (o.port < 1 || o.port > lastPort) {
		return fmt.Errorf("--%s: %d is no port; write a number from 1 to %d", flagPort, o.port, lastPort)
	}
	for _, flag := range []string{flagTargetPort, flagProtocol, flagPortName} {
		if o.port == 0 && changed(flag) {
			o.warnings = append(o.warnings, "--"+flag+" counts with --"+flagPort+" only; the ports are those that the VM lists")
		}
	}
	var err error
	if o.protocol, err = choose(flagProtocol, o.protocolText, corev1.ProtocolTCP, corev1.ProtocolUDP); err != nil {
		return err
	}
	if o.serviceType, err = choose(flagType, o.typeText, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer); err != nil {
		return err
	}
	if err := o.parseFamilies(); err != nil {
		return err
	}
	return o.parsePolicy()
}

func (o *options) parseFamilies() error {
	if o.familyText == "" {
		return nil
	}
	for text := range strings.SplitSeq(o.familyText, ",") {
		family, err := choose(flagFamily, text, corev1.IPv4Protocol, corev1.IPv6Protocol)
		if err != nil {
			return err
		}
		if slices.Contains(o.families, family) {
			return fmt.Errorf("--%s: %s stands there twice; write each family once", flagFamily, family)
		}
		o.families = append(o.families, family)
	}
	return nil
}

func (o *options) parsePolicy() error {
	if o.policyText == "" {
		if len(o.families) > 1 {
			policy := corev1.IPFamilyPolicyPreferDualStack
			o.policy = &policy
		}
		return nil
	}
	policy, err := choose(flagPolicy, o.policyText, corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)
	if err != nil {
		return err
	}
	if policy == corev1.IPFamilyPolicySingleStack && len(o.families) > 1 {
		return errors.New("--" + flagPolicy + ": SingleStack goes with one family, and --" + flagFamily + " names two; write one of them, or PreferDualStack")
	}
	o.policy = &policy
	return nil
}

// choose returns the choice that text names, in any case.
func choose[T ~string](flag, text string, choices ...T) (T, error) {
	names := make([]string, len(choices))
	for i, choice := range choices {
		if strings.EqualFold(string(choice), text) {
			return choice, nil
		}
		names[i] = string(choice)
	}
	last := len(names) - 1
	return "", fmt.Errorf("--%s: %q is not known; write %s or %s", flag, text, strings.Join(names[:last], ", "), names[last])
}
