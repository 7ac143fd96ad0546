"""What `prebleexp bench` measures, a file for each table. No other command loads any of it but `calibrate`."""
