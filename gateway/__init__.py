"""Gateways: protocols of other systems over the tidelog client; the server never imports them."""
