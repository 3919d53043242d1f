"""The stores behind the port; none of them knows another."""
