package transfer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
)

// leastBandwidth is the smallest limit: with less, servers take a download for one that has stopped.
const leastBandwidth = 64 << 10

// ParseBandwidth reads a limit of downloads: bytes in a second, as a quantity. An empty text is no limit, 0.
func ParseBandwidth(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no quantity; write how many bytes may come in a second, like 50Mi", text)
	}
	if quantity.Value() < leastBandwidth {
		return 0, fmt.Errorf("%s bytes in a second is too little; write 64Ki or more", text)
	}
	return quantity.Value(), nil
}
